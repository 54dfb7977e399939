"""Who gave what; and what belongs to a key is found by an index."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "credits",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("volunteer", sa.Text, primary_key=True),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("reported_at", sa.Double, nullable=False),
        sa.Column("units", sa.BigInteger, nullable=False),
        sa.Column("samples", sa.BigInteger, nullable=False),
        sa.Column("flop", sa.Double, nullable=False),
        sa.Column("signed_flop", sa.Double),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("ix_credits_volunteer", "credits", ["volunteer"])
    op.create_index("ix_credits_host", "credits", ["host"])
    op.create_index("ix_jobs_owner", "jobs", ["owner"])
    op.create_index("ix_members_volunteer", "members", ["volunteer"])
