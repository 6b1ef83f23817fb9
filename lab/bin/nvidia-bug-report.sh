#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
. "${0%/*}/../model/run.sh"
