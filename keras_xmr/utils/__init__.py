"""What every room uses: errors, files, types of options, progress, vectors and plugins."""
