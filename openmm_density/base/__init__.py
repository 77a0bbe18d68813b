"""What every room needs: errors, units, files, processes."""
