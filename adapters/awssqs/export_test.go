package awssqs

// Decode lets tests read what a Publisher has sent.
var Decode = decode
