"""The diffusion recipe: SmoothQuant INT8 of a UNet by NVIDIA ModelOpt, out of process, with the likeness it keeps."""
