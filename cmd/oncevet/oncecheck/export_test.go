package oncecheck

var EndsTransaction = endsTransaction
