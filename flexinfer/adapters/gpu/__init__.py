"""Hardware sources behind ports.HardwareSource: NVML, amdsmi, command-line tools, sysfs."""
