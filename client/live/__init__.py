"""The live loop: an extension that is rebuilt whenever its files are saved."""
