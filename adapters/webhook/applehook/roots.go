package applehook

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	_ "embed" // for the root certificate
	"encoding/hex"
	"fmt"
)

// rootFingerprint is the SHA-256 of the certificate of Apple Root CA - G3. A test compares it with the file.
const rootFingerprint = "63343abfb89a6a03ebb57e9b3f5fa7be7c4f5c756f3017b3a8c488c3653e9179"

// rootDER is the file https://www.apple.com/certificateauthority/AppleRootCA-G3.cer.
//
//go:embed AppleRootCA-G3.cer
var rootDER []byte

// AppleRoots returns the root certificates that the App Store signs with: Apple Root CA - G3.
func AppleRoots() ([]*x509.Certificate, error) {
	if sum := sha256.Sum256(rootDER); hex.EncodeToString(sum[:]) != rootFingerprint {
		return nil, fmt.Errorf("applehook: the embedded certificate of Apple Root CA - G3 was changed: its SHA-256 is %x, want %s", sum, rootFingerprint)
	}
	root, err := x509.ParseCertificate(rootDER)
	if err != nil {
		return nil, fmt.Errorf("applehook: the embedded certificate of Apple Root CA - G3: %w", err)
	}
	return []*x509.Certificate{root}, nil
}

// checkRoots calls refuse for each certificate that cannot be a root.
func checkRoots(roots []*x509.Certificate, refuse func(format string, args ...any)) {
	for i, root := range roots {
		switch {
		case root == nil:
			refuse("Roots[%d] is nil", i)
		case !root.BasicConstraintsValid || !root.IsCA:
			refuse("Roots[%d] (%s) is not the certificate of an authority: use the root, not a certificate that signs notifications", i, root.Subject)
		case !bytes.Equal(root.RawSubject, root.RawIssuer):
			refuse("Roots[%d] (%s) is issued by %s: use the root itself, so that the chain has three certificates", i,
				root.Subject, root.Issuer)
		}
	}
}
