"""Upgrade and downgrade: where offsets and Positions are now, and the steps that bring them where a release keeps them."""
