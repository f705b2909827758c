// Package appletest signs App Store Server Notifications for tests and examples, and imitates Apple's history of
// notifications.
//
//	authority, err := appletest.NewAuthority()
//	…
//	verifier, err := applehook.New(applehook.Config{…, Roots: authority.Roots()})
//	…
//	body, err := authority.Body(appletest.Notification{Type: "DID_RENEW", BundleID: "com.example.app", …})
//
// # How it works
//
// An [Authority] has certificates of its own: a root, an intermediate, and a leaf that signs, with the extensions that
// Apple uses to mark those of the App Store. A Verifier accepts them only if its Config.Roots says so, so nothing here
// helps to forge a notification.
//
// An [API] is an http.Handler for a local server. It checks the token of each request, returns notifications in pages,
// and can refuse requests as Apple does.
//
// # What a crash does
//
// Nothing: all is kept in memory.
package appletest
