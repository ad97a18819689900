"""What every other folder uses: errors, promises, settings, the environment, worker threads, forks,
waiting and memory probes. Imports nothing else of the package."""
