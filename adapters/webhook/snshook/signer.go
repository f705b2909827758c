package snshook

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"time"
)

// Signer signs messages for tests, with a key and certificate of its own. It is also the http.RoundTripper that serves
// this certificate, so that a Verifier with Config.Transport = signer accepts what signer signed, and no test needs a
// network. It is safe for concurrent use.
type Signer struct {
	key *rsa.PrivateKey
	pem []byte
	url string
}

// NewSigner returns a Signer with a new key.
func NewSigner() (*Signer, error) {
	key, err := rsa.GenerateKey(rand.Reader, minKey)
	if err != nil {
		return nil, fmt.Errorf("snshook: NewSigner: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "sns.amazonaws.com"},
		NotBefore:    time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("snshook: NewSigner: %w", err)
	}
	sum := sha256.Sum256(der)
	return &Signer{
		key: key,
		pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		url: "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-" + hex.EncodeToString(sum[:16]) + ".pem",
	}, nil
}

// Message is a message for a Signer.
type Message struct {
	TopicArn string
	Message  string
	Subject  string // empty: none

	Type      string    // empty: Notification; or SubscriptionConfirmation or UnsubscribeConfirmation
	MessageID string    // empty: a new UUID
	Timestamp time.Time // zero: now
	Token     string    // of a confirmation; empty: "token"

	SignatureVersion string // empty: 2; or 1
}

// Sign returns the body of the request that SNS would send for m.
func (s *Signer) Sign(m Message) ([]byte, error) {
	m.Type = cmp.Or(m.Type, notification)
	if m.MessageID == "" {
		m.MessageID = newUUID()
	}
	if m.Timestamp.IsZero() {
		m.Timestamp = time.Now()
	}
	m.Token = cmp.Or(m.Token, "token")
	m.SignatureVersion = cmp.Or(m.SignatureVersion, "2")
	fields := map[string]string{
		"Type": m.Type, "MessageId": m.MessageID, "TopicArn": m.TopicArn, "Message": m.Message,
		"Timestamp":        m.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z"),
		"SignatureVersion": m.SignatureVersion, "SigningCertURL": s.url,
	}
	if m.Subject != "" {
		fields["Subject"] = m.Subject
	}
	if m.Type != notification {
		fields["Token"] = m.Token
		fields["SubscribeURL"] = "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=" +
			url.QueryEscape(m.TopicArn) + "&Token=" + url.QueryEscape(m.Token)
	}
	return s.sign(fields)
}

// sign returns the message with fields and their signature.
func (s *Signer) sign(fields map[string]string) ([]byte, error) {
	hash := crypto.SHA256
	if fields["SignatureVersion"] == "1" {
		hash = crypto.SHA1
	}
	digest := hash.New()
	digest.Write(signedText(fields["Type"], fields))
	signature, err := rsa.SignPKCS1v15(rand.Reader, s.key, hash, digest.Sum(nil))
	if err != nil {
		return nil, fmt.Errorf("snshook: Sign: %w", err)
	}
	fields["Signature"] = base64.StdEncoding.EncodeToString(signature)
	return json.Marshal(fields)
}

// RoundTrip answers like SNS: requests for the certificate with the certificate, and other requests with 200 if they
// confirm a subscription and with 404 if not.
func (s *Signer) RoundTrip(req *http.Request) (*http.Response, error) {
	status, body := http.StatusNotFound, []byte(nil)
	switch {
	case req.URL.String() == s.url:
		status, body = http.StatusOK, s.pem
	case req.URL.Query().Get("Action") == "ConfirmSubscription":
		status = http.StatusOK
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Request: req,
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
