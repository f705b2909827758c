package appletest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// API imitates the notification history of the App Store Server API. Set its fields before the first request. It is
// safe for concurrent use.
type API struct {
	// Key is the public half of applehook.BackfillConfig.PrivateKey. IssuerID, KeyID and BundleID are those that its
	// tokens must name. Required.
	Key                       *ecdsa.PublicKey
	IssuerID, KeyID, BundleID string

	// Keep is how long notifications stay in the history.
	//
	// Defaults to 180 days, as in production.
	Keep time.Duration

	// Fail may refuse a request instead of answering it. request is 1 for the first one. It returns false to answer it.
	//
	// Defaults to a function that refuses none.
	Fail func(w http.ResponseWriter, r *http.Request, request int) bool

	mu       sync.Mutex
	requests int
	records  []record
}

type record struct {
	at            time.Time
	signedPayload string
	acknowledged  bool
}

// Missed adds a notification that no server acknowledged.
func (a *API) Missed(at time.Time, signedPayload string) { a.add(record{at, signedPayload, false}) }

// Acknowledged adds a notification that a server acknowledged.
func (a *API) Acknowledged(at time.Time, signedPayload string) {
	a.add(record{at, signedPayload, true})
}

func (a *API) add(r record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records = append(a.records, r)
	slices.SortStableFunc(a.records, func(a, b record) int { return a.at.Compare(b.at) })
}

// Requests returns how many requests there were.
func (a *API) Requests() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests
}

// Path is where the history is.
const Path = "/inApps/v1/notifications/history"

// PageSize is how many notifications a response has at most.
const PageSize = 20

// Refuse answers as Apple does when it refuses a request.
func Refuse(w http.ResponseWriter, status int, code int64, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// the client sees a broken response
	_ = json.NewEncoder(w).Encode(map[string]any{"errorCode": code, "errorMessage": message})
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.requests++
	request := a.requests
	a.mu.Unlock()
	if a.Fail != nil && a.Fail(w, r, request) {
		return
	}
	now := time.Now()
	if r.Method != http.MethodPost || r.URL.Path != Path || r.Header.Get("Content-Type") != "application/json" {
		Refuse(w, http.StatusNotFound, 4040000, "want a POST of JSON to "+Path)
		return
	}
	if err := a.checkToken(r.Header.Get("Authorization"), now); err != nil {
		Refuse(w, http.StatusUnauthorized, 0, err.Error())
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
	if err != nil {
		Refuse(w, http.StatusBadRequest, 4000000, err.Error())
		return
	}
	var query struct {
		StartDate    *int64 `json:"startDate"`
		EndDate      *int64 `json:"endDate"`
		OnlyFailures bool   `json:"onlyFailures"`
	}
	oldest := now.Add(-cmp.Or(a.Keep, 180*24*time.Hour))
	switch err := json.Unmarshal(body, &query); {
	case err != nil:
		Refuse(w, http.StatusBadRequest, 4000000, err.Error())
		return
	case query.StartDate == nil:
		Refuse(w, http.StatusBadRequest, 4000015, "Invalid request. The start date is invalid.")
		return
	case query.EndDate == nil:
		Refuse(w, http.StatusBadRequest, 4000016, "Invalid request. The end date is invalid.")
		return
	case *query.StartDate < oldest.UnixMilli():
		Refuse(w, http.StatusBadRequest, 4000012, "Invalid request. The start date is earlier than the earliest allowed date.")
		return
	case *query.StartDate >= *query.EndDate:
		Refuse(w, http.StatusBadRequest, 4000013, "Invalid request. The end date precedes the start date.")
		return
	}
	start, err := a.startOf(r.URL.Query().Get("paginationToken"), body)
	if err != nil {
		Refuse(w, http.StatusBadRequest, 4000014, err.Error())
		return
	}
	a.answer(w, *query.StartDate, *query.EndDate, query.OnlyFailures, start, body)
}

// answer writes a page. start is the number of notifications on the pages before it.
func (a *API) answer(w http.ResponseWriter, from, to int64, onlyFailures bool, start int, body []byte) {
	a.mu.Lock()
	var matching []record
	for _, r := range a.records {
		if at := r.at.UnixMilli(); at >= from && at < to && !(onlyFailures && r.acknowledged) {
			matching = append(matching, r)
		}
	}
	a.mu.Unlock()
	end := min(start+PageSize, len(matching))
	history := []any{}
	for _, r := range matching[min(start, end):end] {
		result := "NO_RESPONSE"
		if r.acknowledged {
			result = "SUCCESS"
		}
		history = append(history, map[string]any{
			"signedPayload": r.signedPayload,
			"sendAttempts":  []any{map[string]any{"attemptDate": r.at.UnixMilli(), "sendAttemptResult": result}},
		})
	}
	page := map[string]any{"notificationHistory": history, "hasMore": end < len(matching)}
	if end < len(matching) {
		page["paginationToken"] = pageToken(end, body)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(page) // the client sees a broken response
}

func pageToken(start int, body []byte) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%d %x", start, sha256.Sum256(body)))
}

// startOf returns where a page begins. A token is only for the request that it was made for.
func (a *API) startOf(token string, body []byte) (start int, err error) {
	if token == "" {
		return 0, nil
	}
	content, err := base64.StdEncoding.DecodeString(token)
	if err == nil {
		_, err = fmt.Sscanf(string(content), "%d ", &start)
	}
	if err != nil || token != pageToken(start, body) {
		return 0, errors.New("the pagination token is invalid")
	}
	return start, nil
}

// checkToken checks the JSON Web Token of a request.
func (a *API) checkToken(authorization string, now time.Time) error {
	bearer, ok := strings.CutPrefix(authorization, "Bearer ")
	parts := strings.Split(bearer, ".")
	if !ok || len(parts) != 3 {
		return errors.New("want a Bearer token")
	}
	var header struct{ Alg, Kid, Typ string }
	var claims struct {
		Iss, Aud, Bid string
		Iat, Exp      int64
	}
	for i, into := range []any{&header, &claims} {
		content, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err == nil {
			err = json.Unmarshal(content, into)
		}
		if err != nil {
			return fmt.Errorf("token: part %d: %w", i+1, err)
		}
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || len(signature) != 64 {
		return errors.New("token: the signature has the wrong form")
	}
	hash := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if !ecdsa.Verify(a.Key, hash[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])) {
		return errors.New("token: the signature is wrong")
	}
	issued, expires := time.Unix(claims.Iat, 0), time.Unix(claims.Exp, 0)
	switch {
	case header.Alg != "ES256", header.Kid != a.KeyID, header.Typ != "JWT":
		return fmt.Errorf("token: header %+v", header)
	case claims.Iss != a.IssuerID, claims.Aud != "appstoreconnect-v1", claims.Bid != a.BundleID:
		return fmt.Errorf("token: claims %+v", claims)
	case issued.After(now), !expires.After(now), expires.Sub(issued) > time.Hour:
		return fmt.Errorf("token: issued %v, expires %v", issued, expires)
	}
	return nil
}
