"""What somebody has, read as settings: scripts, images, engines, repositories, manifests."""
