"""Run by Alembic (`store.migration` calls it): all steps in the transaction that is open."""

from alembic import context

from crowdgrad.store.migration import VERSION_TABLE
from crowdgrad.store.schema import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
