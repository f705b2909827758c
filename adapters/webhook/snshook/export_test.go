package snshook

// CheckSubscribeURL is for tests: a Signer cannot sign every URL.
var CheckSubscribeURL = checkSubscribeURL
