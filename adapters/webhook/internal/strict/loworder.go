package strict

import (
	"encoding/hex"
	"slices"
)

// lowOrder are the y coordinates, little-endian and without the sign of x, of the eight points with an order of 8 or
// less: 0, 1, -1, and the two of order 8. The last two are 0 and 1 in their other encoding. Package ed25519 accepts
// such public keys, and for each of them a signature can be found without a private key: 32 zero bytes, for example,
// are one.
var lowOrder = [...]string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}

// LowOrder reports whether key, an Ed25519 public key, is one of lowOrder: anybody could make its signatures.
func LowOrder(key []byte) bool {
	y := slices.Clone(key)
	y[len(y)-1] &= 0x7f
	return slices.Contains(lowOrder[:], hex.EncodeToString(y))
}
