"""The live loop: an extension that is built anew whenever its files are saved."""
