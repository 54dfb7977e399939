"""Jobs, their rosters, volunteers, and what the service keeps for itself."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("code", sa.Text, nullable=False, unique=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("published_at", sa.Double, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_table(
        "members",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True),
        sa.Column("volunteer", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.UniqueConstraint("job", "volunteer"),
    )
    op.create_table(
        "volunteers",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("job", sa.Text),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_table(
        "secrets",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_table("holder", sa.Column("id", sa.Text, primary_key=True))
