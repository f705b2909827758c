package appletest_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/adapters/webhook/applehook/appletest"
)

// A test signs a notification and posts the body to its own endpoint.
func ExampleAuthority() {
	authority, err := appletest.NewAuthority()
	if err != nil {
		log.Fatal(err)
	}
	verifier, err := applehook.New(applehook.Config{
		BundleID: "com.example.app", Environment: applehook.Sandbox,
		Roots: authority.Roots(),
	})
	if err != nil {
		log.Fatal(err)
	}
	body, err := authority.Body(appletest.Notification{
		Type: "TEST", BundleID: "com.example.app",
		Environment: applehook.Sandbox,
	})
	if err != nil {
		log.Fatal(err)
	}
	events, err := verifier.Verify(context.Background(), &webhook.Delivery{Body: body, Time: time.Now()})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(events[0].Drop)
	// Output: test notification
}

// The API refuses requests without the right token, as Apple does.
func ExampleAPI() {
	api := &appletest.API{IssuerID: "57246542-96fe", KeyID: "2X9R4HXF34", BundleID: "com.example.app"}
	r := httptest.NewRequest("POST", appletest.Path, strings.NewReader(`{"startDate": 0, "endDate": 1}`))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	fmt.Println(w.Code)
	// Output: 401
}
