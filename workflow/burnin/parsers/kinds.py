# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of signals: every word a parser may use as `Signal.kind`, with what it means.

One table, so that parsers, criteria and documents cannot drift apart. Judging maps kinds to faults and parts
(`config/criteria.yaml`); a kind that is not in this table is a programming error.
"""

from __future__ import annotations

KINDS: dict[str, str] = {
    # correctness of the workload's own result
    "wrong_elements": "nccl-tests counted wrong elements (value = count)",
    "out_of_bounds": "nccl-tests footer: out of bounds values > 0",
    "residual_failed": "HPL residual FAILED (value = residual), NaN included",
    "loss_nan": "training loss is NaN or Inf, or vanished from the record",
    "loss_jump": "training loss jumped (value = new loss)",
    "accuracy_low": "SQuAD EM or F1 far below the reference",
    "persistent_error": "Megatron rerun machine: unexpected or persistent result on a rank",
    # communication
    "nccl_port_error": "NCCL saw a port error / fatal async event of an HCA",
    "nccl_port_active": "NCCL saw the port come back (recovery of nccl_port_error)",
    "nccl_completion_error": "IB completion with an error status other than flushed (value = status)",
    "nccl_socket": "NCCL uses NET/Socket, not InfiniBand",
    "nccl_no_device": "NCCL found no IB device",
    "nccl_warn": "any other NCCL WARN line",
    "nccl_test_failure": "nccl-tests 'Test NCCL/CUDA failure' on a host (a victim, not a culprit)",
    "nccl_timeout": "nccl-tests 'Test timeout'",
    "watchdog_timeout": "PyTorch NCCL watchdog timeout on a rank",
    "invalid_launch": "every process ran alone (no MPI), or device count differs from the expected ranks",
    # job and software
    "cuda_error": "CUDA error on a rank (detail.what)",
    "cuda_ecc": "CUDA error: uncorrectable ECC",
    "cuda_nvlink": "CUDA error: uncorrectable NVLink error",
    "oom_gpu": "CUDA out of memory",
    "oom_host": "the kernel or Slurm killed tasks for memory",
    "driver_mismatch": "CUDA driver version is insufficient for the runtime",
    "hpl_error": "HPL ERROR / illegal input / memory allocation failed",
    "checkpoint_failed": "a checkpoint could not be written or finalised",
    "resume_from_scratch": "the log says that nothing was resumed",
    "torchrun_root_cause": "torchrun's root cause on a node (rank, exit code)",
    "straggler": "straggler report: score of a rank (value = score)",
    "task_exit": "srun: a task ended badly (detail.state; first one matters)",
    "step_cancelled": "Slurm cancelled the job or step (detail.why)",
    "node_failure": "srun or slurmstepd: node failure",
    "time_limit": "Slurm: time limit",
    # GPU
    "xid": "NVRM Xid (value = code, bdf)",
    "gpu_lost": "GPU fell off the bus / is lost / device handle unknown",
    "gpu_requires_reset": "nvidia-smi: GPU requires reset, recovery action, ERR!",
    "gpu_count": "number of GPUs the tool saw (value; detail.expected if the tool says it)",
    "sxid": "NVSwitch SXid (value = code, detail.fatal)",
    "ecc_uncorrectable": "uncorrectable ECC counter (value, counters are differenced by judging)",
    "ecc_correctable": "correctable ECC counter (value)",
    "row_remap_failed": "row remapping failure occurred",
    "row_remap_pending": "row remapping pending",
    "row_remap_count": "rows remapped (value)",
    "throttle": "HW slowdown, HW thermal slowdown, power brake or SW thermal slowdown active (detail.reason)",
    "gpu_temperature": "GPU temperature (value C); detail.t_limit where the tool gives headroom",
    "gpu_power": "GPU power draw (value W)",
    "nvlink_error": "NVLink error or inactive link (device = link)",
    "dcgm_health": "dcgmi health: a system is not Healthy (detail.system, detail.level)",
    "dcgm_diag": "dcgmi diag: a test failed (detail.test)",
    # fabric
    "link_state": "port is not Active / LinkUp",
    "link_down_count": "Link Down Counter (value)",
    "link_recovery_count": "Link Error Recovery Counter (value)",
    "link_effective_ber": "effective or symbol BER (value)",
    "link_effective_errors": "effective physical errors / symbol errors (value)",
    "link_speed": "speed or width below what is enabled",
    "module_temperature": "transceiver temperature (value C, limit)",
    "module_rx_power": "a lane's Rx power is outside its range or far from its neighbours (value dBm)",
    "module_tx_power": "a lane's Tx power is outside its range (value dBm)",
    "ib_port_down": "kernel: IB/Ethernet port down",
    "ib_port_up": "kernel: port up again",
    "port_counter": "fabric error counter of a port (value, detail.counter)",
    "fabric_check": "ibdiagnet stage with errors (detail.stage, value = errors)",
    "fabric_nodes": "number of CAs discovered (value)",
    # platform
    "pcie_uncorrected": "AER uncorrected error",
    "pcie_corrected": "AER corrected errors (value = count)",
    "memory_ue": "EDAC/MCE uncorrected memory error",
    "memory_ce": "EDAC corrected memory errors (value = count)",
    "kernel_hang": "kernel: hung task or unkillable process",
    "log_starts": "first time stamp in the kernel log (value = seconds since boot or epoch; detail.clock)",
    "fan_failed": "fan at 0 RPM or critical (device = sensor)",
    "psu_failed": "PSU failed, lost input, or critical (device = sensor)",
    "sensor_critical": "other sensor critical or non-recoverable",
    "inlet_temperature": "inlet/ambient temperature (value C)",
    "sel_event": "BMC event log entry (detail.event)",
    # Slurm's view
    "node_state": "scontrol: node state (detail.base, detail.flags, detail.reason, detail.boot_time)",
    "job_state": "sacct: job state (detail.state, detail.exit)",
    # evidence itself
    "unreadable": "the tool ran but its value could not be read (N/A, ERR!, no permission)",
}
