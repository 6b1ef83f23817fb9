# SPDX-License-Identifier: Apache-2.0
"""The acceptance report: what a campaign's files say, as one HTML file, a table for spreadsheets and JUnit's XML.

`collect` reads the files into a `facts.Facts`; `sections` turns the facts into blocks; `page` writes the blocks as HTML,
`table` and `junit` write the other two. Only `collect` and `write` touch the disk; nothing here decides anything.
"""
