"""When operators get more instances or fewer: the detector, the policies, and the governor that limits them."""
