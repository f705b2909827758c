package applehook_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log"
	"log/slog"
	"net/http/httptest"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/adapters/webhook/applehook/appletest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
)

// A Verifier accepts what its authority signed, for its app, and nothing else.
func ExampleVerifier() {
	authority, err := appletest.NewAuthority() // signs in Apple's place
	if err != nil {
		log.Fatal(err)
	}
	verifier, err := applehook.New(applehook.Config{
		BundleID: "com.example.app", AppAppleID: 1234567890, Environment: applehook.Production,
		Roots: authority.Roots(), // leave this out to accept Apple's notifications
	})
	if err != nil {
		log.Fatal(err)
	}
	forger, err := appletest.NewAuthority()
	if err != nil {
		log.Fatal(err)
	}
	notification := appletest.Notification{
		Type: "DID_RENEW", UUID: "5d30ef22", BundleID: "com.example.app", AppAppleID: 1234567890,
		Transaction: map[string]any{"originalTransactionId": "2000000000000001", "productId": "pro.monthly"},
	}
	for _, signer := range []*appletest.Authority{authority, forger} {
		body, err := signer.Body(notification)
		if err != nil {
			log.Fatal(err)
		}
		events, err := verifier.Verify(context.Background(), &webhook.Delivery{Body: body, Time: time.Now()})
		if err != nil {
			fmt.Println("refused:", webhook.RefusalOf(err))
			continue
		}
		fmt.Println(events[0].Message.Tenant, events[0].Message.ID, events[0].Message.Topic)
	}
	// Output:
	// apple/Production/com.example.app 5d30ef22 DID_RENEW
	// refused: bad-signature
}

// Decode returns the typed fields in a handler.
func ExampleDecode() {
	handle := func(_ context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
		n, err := applehook.Decode(msg)
		if err != nil {
			return err
		}
		switch {
		case n.Type == "DID_RENEW" && n.Transaction != nil:
			fmt.Println(n.Transaction.OriginalTransactionID, "is paid until",
				n.Transaction.ExpiresDate.Time().Format(time.DateOnly))
		default: // Apple adds types
		}
		return nil
	}
	msg := &consumer.Message{Payload: []byte(`{"applehook": 1,
		"notification": {"notificationType": "DID_RENEW", "notificationUUID": "5d30ef22"},
		"transaction": {"originalTransactionId": "2000000000000001", "expiresDate": 1900000000000}}`)}
	fmt.Println(handle(context.Background(), nil, msg))
	// Output:
	// 2000000000000001 is paid until 2030-03-17
	// <nil>
}

// A Backfill passes what the receiver missed to the receiver's consumer.
func ExampleBackfill() {
	ctx := context.Background()
	authority, err := appletest.NewAuthority()
	if err != nil {
		log.Fatal(err)
	}
	verifier, err := applehook.New(applehook.Config{
		BundleID: "com.example.app", AppAppleID: 1234567890,
		Environment: applehook.Production, Roots: authority.Roots(),
	})
	if err != nil {
		log.Fatal(err)
	}
	store := consumertest.NewStore() // pgxstore.New, sqlstore.New
	logger := slog.New(slog.DiscardHandler)
	subscriptions, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "subscriptions", Store: store, Key: consumer.MessageID, Window: 200 * 24 * time.Hour, Logger: logger,
		Handle: func(_ context.Context, tx *deduptest.Tx, _ *consumer.Message) error { return tx.Add("renewal") },
	})
	if err != nil {
		log.Fatal(err)
	}

	// A local server in Apple's place, with a notification that was missed an hour ago.
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	api := &appletest.API{
		Key: &key.PublicKey, IssuerID: "57246542-96fe", KeyID: "2X9R4HXF34",
		BundleID: "com.example.app",
	}
	server := httptest.NewServer(api)
	defer server.Close()
	missed, err := authority.SignedPayload(appletest.Notification{
		Type: "DID_RENEW", BundleID: "com.example.app",
		AppAppleID: 1234567890,
	})
	if err != nil {
		log.Fatal(err)
	}
	api.Missed(time.Now().Add(-time.Hour), missed)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		log.Fatal(err)
	}

	backfill, err := applehook.NewBackfill(applehook.BackfillConfig[*deduptest.Tx]{
		Name: "subscriptions", Verifier: verifier, Processor: subscriptions, Store: store, Logger: logger,
		IssuerID: "57246542-96fe", KeyID: "2X9R4HXF34",
		PrivateKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		Since:      time.Now().Add(-24 * time.Hour), // in a program, the date when this consumer went live
		URL:        server.URL,                      // leave this out to ask Apple
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 { // in a program: backfill.Run(ctx)
		passed, err := backfill.Pass(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(passed.New, "new")
	}
	fmt.Println(store.Database().Count("renewal"), "renewal")
	// Output:
	// 1 new
	// 0 new
	// 1 renewal
}
