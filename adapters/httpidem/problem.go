package httpidem

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/usercode"
)

// Reason says why a request was not answered by a handler's response. It is the end of the "type" of the answer, a
// Problem Details object of RFC 9457.
type Reason string

// The reasons. Nothing was committed, except where the text says something else.
const (
	MissingKey     Reason = "MissingKey"     // 400: there is no Idempotency-Key
	MalformedKey   Reason = "MalformedKey"   // 400: the Idempotency-Key cannot be read, or its time is in the future
	BodyIncomplete Reason = "BodyIncomplete" // 400: the body ended early
	NoPrincipal    Reason = "NoPrincipal"    // 401: the request is not authenticated
	// 406: the request was completed before, and the client does not accept the encoding of the response
	NotAcceptable Reason = "NotAcceptable"
	// 409: another request with this key is running; send the request again later
	InFlight Reason = "InFlight"
	// 409: the request was completed before, and its response is not available
	NotRetained Reason = "NotRetained"
	// 409: the key is so old that the request may have been completed and forgotten
	Forgotten       Reason = "Forgotten"
	BodyTooLarge    Reason = "BodyTooLarge"    // 413: the body is too long
	Mismatch        Reason = "Mismatch"        // 422: the key was used for another request
	Failed          Reason = "Failed"          // 500: the handler failed
	ResponseTooLong Reason = "ResponseTooLong" // 500: the response is longer than Config.MaxResponse
	Misused         Reason = "Misused"         // 500: a middleware in front of this one makes it impossible
	// 503: too many requests are running, or one holds keys that the handler locks; send the request again later
	Busy Reason = "Busy"
	// 503: the handler took longer than Config.Timeout; send the request again later
	TimedOut Reason = "TimedOut"
	// 503: the database failed, and the request may be committed; send it again, and its key decides
	Unavailable  Reason = "Unavailable"
	Disconnected Reason = "Disconnected" // 503: the client was gone before the handler began
)

// typeURL is where the reasons are documented.
const typeURL = "https://pkg.go.dev/github.com/txonce/txonce/adapters/httpidem#"

var problems = map[Reason]struct {
	status int
	title  string
}{
	MissingKey:      {400, "The header Idempotency-Key is missing"},
	MalformedKey:    {400, "The Idempotency-Key is not valid"},
	BodyIncomplete:  {400, "The body is incomplete"},
	NoPrincipal:     {401, "The request is not authenticated"},
	NotAcceptable:   {406, "The request was completed before, and its response has an encoding that the client does not accept"},
	InFlight:        {409, "Another request with this Idempotency-Key is running"},
	NotRetained:     {409, "The request was completed before, and its response is not available"},
	Forgotten:       {409, "The Idempotency-Key is too old"},
	BodyTooLarge:    {413, "The body is too long"},
	Mismatch:        {422, "The Idempotency-Key was used for another request"},
	Failed:          {500, "The request failed"},
	ResponseTooLong: {500, "The response is too long, and nothing of the request was stored"},
	Misused:         {500, "The server is not set up correctly"},
	Busy:            {503, "The server is busy"},
	TimedOut:        {503, "The request took too long, and nothing of it was stored"},
	Unavailable:     {503, "The database is not available"},
	Disconnected:    {503, "The client has disconnected"},
}

// Reasons returns all reasons, in the order of their names.
func Reasons() []Reason { return slices.Sorted(maps.Keys(problems)) }

// refusal is a request's answer that comes from this package.
type refusal struct {
	reason Reason
	err    error
}

func refuse(reason Reason, err error) *refusal { return &refusal{reason: reason, err: err} }

func (r *refusal) status() int { return problems[r.reason].status }

// detailed reasons put the text of their error into the answer. The errors of the others may show what the client must
// not see.
var detailed = map[Reason]bool{MalformedKey: true, BodyTooLarge: true}

// Problem is what a client is told about a refused request: a Problem Details object of RFC 9457.
type Problem struct {
	Reason Reason `json:"-"`
	Type   string `json:"type"` // a URL that ends with the Reason
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"` // of some Reasons; it has no text of a handler or of the database
}

// problem returns what the client is told. header is where keys come from.
func (r *refusal) problem(header string) Problem {
	known := problems[r.reason]
	p := Problem{
		Reason: r.reason, Type: typeURL + string(r.reason), Status: known.status,
		Title: strings.ReplaceAll(known.title, defaultHeader, header),
	}
	switch {
	case !detailed[r.reason]:
	case errors.Is(r.err, dedup.ErrFuture): // its text contains the HMAC of the key
		p.Detail = "the key's time is in the future"
	default:
		p.Detail = r.err.Error()
	}
	return p
}

// response returns the answer. body is Config.Problem; nil: Problem Details as JSON.
func (r *refusal) response(req *http.Request, header string, body func(*http.Request, Problem) (string, []byte)) *response {
	p := r.problem(header)
	res := &response{status: p.Status, header: http.Header{}}
	kind := ""
	if body == nil || usercode.Run(func() { kind, res.body = body(req, p) }) != nil {
		text, _ := json.Marshal(p) // strings and a number
		kind, res.body = "", append(text, '\n')
	}
	res.header.Set("Content-Type", cmp.Or(kind, "application/problem+json"))
	res.header.Set("Cache-Control", "no-store")
	if r.reason == InFlight || p.Status == http.StatusServiceUnavailable {
		res.header.Set("Retry-After", "1")
	}
	return res
}
