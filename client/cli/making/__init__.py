"""Commands that make something of several builds."""
