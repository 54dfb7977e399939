"""Fixtures for everyone."""

from tests.postgres import fresh_postgres, postgres, postgres_url, pytest_terminal_summary

__all__ = ["fresh_postgres", "postgres", "postgres_url", "pytest_terminal_summary"]
