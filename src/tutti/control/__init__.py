"""What a transaction passes: census, closing, commitment at its manager; participation, doubt, compensation at a
member. Pure machines: time and what the journal, the resources and the others say are inputs; what is to be sent,
written, prepared or undone are effects. `transaction` and `participation` are the two that a driver drives; they hold
the others as parts."""
