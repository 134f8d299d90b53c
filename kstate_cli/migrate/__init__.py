"""Upgrade and downgrade: where offsets and Positions are, and the steps to where a release keeps them."""
