"""Parts of a slot that loads its model, each a class derived from `slot_part.SlotPart`; `job.operators` lists them."""
