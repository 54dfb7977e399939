"""What a host tells of its job: status, metrics, logs, the report."""
