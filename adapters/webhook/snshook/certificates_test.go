package snshook_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/snshook"
)

func TestCertificateURL(t *testing.T) {
	signed := sign(t, snshook.Message{})
	const file = "/SimpleNotificationService-0123abcd.pem"
	for _, url := range []string{
		"https://sns.us-east-1.amazonaws.com.evil.io" + file,
		"https://sns.us-east-1.amazonaws.com.evil.io/x.pem",
		"https://evil.io/https://sns.us-east-1.amazonaws.com" + file,
		"https://user@sns.us-east-1.amazonaws.com" + file,
		"https://sns.us-east-1.amazonaws.com@evil.io" + file,
		"https://sns.us-east-1.amazonaws.com:8443" + file,
		"https://sns.us-east-1.amazonaws.com:443" + file,
		"http://sns.us-east-1.amazonaws.com" + file,
		"HTTPS://sns.us-east-1.amazonaws.com" + file,
		"//sns.us-east-1.amazonaws.com" + file,
		"https://bucket.s3.amazonaws.com" + file,
		"https://sns.s3.evil.amazonaws.com" + file,
		"https://sns.amazonaws.com" + file,
		"https://sns.eu.amazonaws.com" + file,
		"https://xsns.us-east-1.amazonaws.com" + file,
		"https://sns.us-east-1.amazonaws.org" + file,
		"https://sns.us-east-1.amazonaws.com.cn.evil.io" + file,
		"https://sns.us-east-1xamazonaws.com" + file,
		"https://sns.us-east-1.amazonaws.com/x.pem",
		"https://sns.us-east-1.amazonaws.com/a" + file,
		"https://sns.us-east-1.amazonaws.com/../evil/" + file,
		"https://sns.us-east-1.amazonaws.com" + file + "?a=b",
		"https://sns.us-east-1.amazonaws.com" + file + "?",
		"https://sns.us-east-1.amazonaws.com" + file + "#a",
		"https://sns.us-east-1.amazonaws.com" + file + "\n",
		" https://sns.us-east-1.amazonaws.com" + file,
		"https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0123ABCD.pem",
		"https://sns.us-east-1.amazonaws.com/SimpleNotificationService-.pem",
		"https://sns.us-east-1.amazonaws.com/SimpleNotificationService-" + strings.Repeat("a", 65) + ".pem",
		"https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0%31.pem",
		"https://sns.us-east-1.amazonaws.com\\@evil.io" + file,
		"", "x",
	} {
		t.Run("case 60: "+url, func(t *testing.T) {
			v, network := newVerifier(t, snshook.Config{})
			_, err := verify(t, v, changed(t, signed, map[string]any{"SigningCertURL": url}))
			if webhook.RefusalOf(err) == "" {
				t.Errorf("not refused: %v", err)
			}
			if n := network.requests(); n != 0 {
				t.Errorf("%d requests, want 0: %v", n, network.urls)
			}
		})
	}
	t.Run("China's host is fetched", func(t *testing.T) {
		v, network := newVerifier(t, snshook.Config{})
		url := "https://sns.cn-north-1.amazonaws.com.cn" + file
		_, _ = verify(t, v, changed(t, signed, map[string]any{"SigningCertURL": url}))
		if n := network.requests(); n != 1 || network.urls[0] != url {
			t.Errorf("requests: %v", network.urls)
		}
	})
}

// What cannot be checked now is no refusal: SNS does not repeat what is answered with 4xx.
func TestFetchFails(t *testing.T) {
	expired := certificate(t, time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC), rsaKey(t, 2048))
	valid := certificate(t, time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC), rsaKey(t, 2048))
	small := certificate(t, time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC), rsaKey(t, 1024))
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		respond func(*http.Request) (*http.Response, error)
	}{
		{"E23: a redirect", func(*http.Request) (*http.Response, error) {
			r := response(302, "")
			r.Header.Set("Location", "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-00.pem")
			return r, nil
		}},
		{"no network", func(*http.Request) (*http.Response, error) { return nil, errors.New("no network") }},
		{"404", func(*http.Request) (*http.Response, error) { return response(404, ""), nil }},
		{"no PEM", func(*http.Request) (*http.Response, error) { return response(200, "<html>"), nil }},
		{"another PEM", func(*http.Request) (*http.Response, error) {
			return response(200, "-----BEGIN KEY-----\nAAAA\n-----END KEY-----\n"), nil
		}},
		{"no certificate in it", func(*http.Request) (*http.Response, error) {
			return response(200, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), nil
		}},
		{"E23: larger than 64 KiB", func(*http.Request) (*http.Response, error) {
			return response(200, strings.Repeat("\n", 64<<10)+valid), nil
		}},
		{"expired", func(*http.Request) (*http.Response, error) { return response(200, expired), nil }},
		{"a short key", func(*http.Request) (*http.Response, error) { return response(200, small), nil }},
		{"case 50: an ECDSA key", func(*http.Request) (*http.Response, error) {
			return response(200, certificate(t, time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC), curve)), nil
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			v, network := newVerifier(t, snshook.Config{})
			network.respond = test.respond
			events, err := verify(t, v, sign(t, snshook.Message{}))
			if err == nil || webhook.RefusalOf(err) != "" || events != nil {
				t.Errorf("Verify = %v, %v; want an error that is no refusal", events, err)
			}
			if n := network.requests(); n != 1 {
				t.Errorf("%d requests, want 1: %v", n, network.urls)
			}
		})
	}
}

func rsaKey(t *testing.T, bits int) *rsa.PrivateKey {
	t.Helper()
	t.Setenv("GODEBUG", "rsa1024min=0") // this test makes a short key to see it refused
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func certificate(t *testing.T, notAfter time.Time, key crypto.Signer) string {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter: notAfter,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestFetchOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, network := newVerifier(t, snshook.Config{})
		release := make(chan struct{})
		network.respond = func(req *http.Request) (*http.Response, error) {
			<-release
			return network.signer.RoundTrip(req)
		}
		body := sign(t, snshook.Message{})
		var wg sync.WaitGroup
		errs := make([]error, 20)
		for i := range errs {
			wg.Go(func() { _, errs[i] = verify(t, v, body) })
		}
		ctx, cancel := context.WithCancel(t.Context())
		var left error
		wg.Go(func() { _, left = v.Verify(ctx, &webhook.Delivery{Body: body, Time: published}) })
		synctest.Wait()
		cancel() // one client goes away
		synctest.Wait()
		close(release)
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				t.Errorf("E23: %v", err)
			}
		}
		if left != nil && !errors.Is(left, context.Canceled) {
			t.Errorf("the client that went away: %v", left)
		}
		if n := network.requests(); n != 1 {
			t.Errorf("E23: 21 requests fetched the certificate %d times", n)
		}
	})
}

// The first caller's end must not fail the others, who wait for its fetch.
func TestFetchOutlivesItsFirstCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, network := newVerifier(t, snshook.Config{})
		network.respond = func(req *http.Request) (*http.Response, error) {
			select {
			case <-req.Context().Done():
				return nil, req.Context().Err()
			case <-time.After(time.Second):
				return network.signer.RoundTrip(req)
			}
		}
		body := sign(t, snshook.Message{})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = v.Verify(ctx, &webhook.Delivery{Body: body, Time: published}) })
		synctest.Wait()
		var err error
		wg.Go(func() { _, err = verify(t, v, body) })
		synctest.Wait()
		cancel()
		wg.Wait()
		if err != nil {
			t.Errorf("E23: the second caller: %v", err)
		}
	})
}

func TestFetchTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, network := newVerifier(t, snshook.Config{})
		network.respond = func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		start := time.Now()
		body := sign(t, snshook.Message{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := v.Verify(ctx, &webhook.Delivery{Body: body, Time: published}); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("a delivery with a deadline: %v", err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("a delivery with a deadline waited %v, want 1s", took)
		}
		if _, err := verify(t, v, body); err == nil || webhook.RefusalOf(err) != "" {
			t.Errorf("Verify = %v; want an error that is no refusal", err)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("E23: the fetch ended after %v, want 5s", took)
		}
	})
}

func TestTransportPanics(t *testing.T) {
	v, network := newVerifier(t, snshook.Config{})
	network.respond = func(*http.Request) (*http.Response, error) { panic("a fault of the transport") }
	if _, err := verify(t, v, sign(t, snshook.Message{})); err == nil || webhook.RefusalOf(err) != "" ||
		!strings.Contains(err.Error(), "a fault of the transport") {
		t.Errorf("Verify = %v; want an error that is no refusal", err)
	}
}

func TestFetchFailureIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, network := newVerifier(t, snshook.Config{})
		network.respond = func(*http.Request) (*http.Response, error) { return response(403, ""), nil }
		body := sign(t, snshook.Message{})
		for range 50 {
			if _, err := verify(t, v, body); err == nil {
				t.Fatal("accepted")
			}
		}
		if n := network.requests(); n != 1 {
			t.Errorf("E23: %d requests for a certificate that could not be fetched, want 1", n)
		}
		network.respond = nil
		<-time.After(10 * time.Second)
		if _, err := verify(t, v, body); err != nil {
			t.Errorf("after 10 seconds: %v", err)
		}
	})
}

func TestFetchesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, network := newVerifier(t, snshook.Config{})
		body := sign(t, snshook.Message{})
		if _, err := verify(t, v, body); err != nil {
			t.Fatal(err)
		}
		forge := func(from int) {
			for i := range 100 {
				url := fmt.Sprintf("https://sns.us-east-1.amazonaws.com/SimpleNotificationService-%x.pem", from+i)
				if _, err := verify(t, v, changed(t, body, map[string]any{"SigningCertURL": url})); err == nil ||
					webhook.RefusalOf(err) != "" {
					t.Fatalf("a forged message: %v", err)
				}
			}
		}
		forge(1000)
		if n := network.requests(); n != 1+8 {
			t.Errorf("E23: 100 forged messages caused %d requests, want 8", n-1)
		}
		<-time.After(time.Minute)
		forge(2000)
		if n := network.requests(); n != 1+8+8 {
			t.Errorf("E23: a minute later there were %d requests in all, want 16", n-1)
		}
		if _, err := verify(t, v, body); err != nil {
			t.Errorf("a message whose certificate is known: %v", err)
		}
	})
}

func TestCertificatesKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, network := newVerifier(t, snshook.Config{})
		body := sign(t, snshook.Message{})
		network.respond = func(req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			req.URL, _ = req.URL.Parse(field(t, body, "SigningCertURL"))
			return network.signer.RoundTrip(req)
		}
		for i := range 20 { // all of them fetched, as if SNS had 20 certificates
			url := fmt.Sprintf("https://sns.us-east-1.amazonaws.com/SimpleNotificationService-%x.pem", i)
			if _, err := verify(t, v, changed(t, body, map[string]any{"SigningCertURL": url})); err != nil {
				t.Fatal(err)
			}
		}
		for _, test := range []struct{ i, requests int }{{19, 20}, {4, 20}, {3, 21}} {
			url := fmt.Sprintf("https://sns.us-east-1.amazonaws.com/SimpleNotificationService-%x.pem", test.i)
			if _, err := verify(t, v, changed(t, body, map[string]any{"SigningCertURL": url})); err != nil {
				t.Fatal(err)
			}
			if n := network.requests(); n != test.requests {
				t.Errorf("E23: %d requests after certificate %d, want %d: 16 are kept", n, test.i, test.requests)
			}
		}
	})
}
