"""How the database came to have the tables it has, step by step, for Alembic."""
