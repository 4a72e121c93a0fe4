"""What tests use and is no test."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # of the checkout
