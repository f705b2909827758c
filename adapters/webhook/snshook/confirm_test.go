package snshook_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/snshook"
)

func TestConfirm(t *testing.T) {
	var seen [][]byte
	v, network := newVerifier(t, snshook.Config{Subscription: func(body []byte) { seen = append(seen, body) }})
	body := sign(t, snshook.Message{Type: "SubscriptionConfirmation", Token: "a+b/c=", Message: "You have chosen to subscribe"})
	if _, err := verify(t, v, body); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 1 || string(seen[0]) != string(body) {
		t.Fatalf("Config.Subscription got %q", seen)
	}
	if n := network.requests(); n != 1 {
		t.Fatalf("case 60: %d requests before Confirm, want 1, for the certificate: %v", n, network.urls)
	}
	if err := v.Confirm(t.Context(), seen[0]); err != nil {
		t.Fatal(err)
	}
	if n := network.requests(); n != 2 || network.urls[1] != field(t, body, "SubscribeURL") {
		t.Errorf("requests: %v", network.urls)
	}
}

func TestSubscriptionIsCalledForVerifiedConfirmationsOnly(t *testing.T) {
	called := 0
	v, _ := newVerifier(t, snshook.Config{Subscription: func([]byte) { called++ }})
	confirmation := sign(t, snshook.Message{Type: "SubscriptionConfirmation"})
	for _, body := range [][]byte{
		sign(t, snshook.Message{}), sign(t, snshook.Message{Type: "UnsubscribeConfirmation"}),
		sign(t, snshook.Message{Type: "SubscriptionConfirmation", TopicArn: other}),
		changed(t, confirmation, map[string]any{"Token": "x"}),
	} {
		_, _ = verify(t, v, body)
	}
	if called != 0 {
		t.Errorf("called %d times", called)
	}
}

func TestConfirmRefuses(t *testing.T) {
	confirmation := sign(t, snshook.Message{Type: "SubscriptionConfirmation"})
	for _, test := range []struct {
		name string
		body []byte
		want webhook.Refusal
	}{
		{"a notification", sign(t, snshook.Message{}), ""},
		{
			"an unsubscribe confirmation, which has a SubscribeURL too",
			sign(t, snshook.Message{Type: "UnsubscribeConfirmation"}), "",
		},
		{
			"another topic", sign(t, snshook.Message{Type: "SubscriptionConfirmation", TopicArn: other}),
			webhook.WrongApp,
		},
		{"a URL that is not signed", changed(t, confirmation, map[string]any{"SubscribeURL": "https://sns.us-east-1.amazonaws.com/?Action=x"}), webhook.BadSignature},
	} {
		t.Run("case 60: "+test.name, func(t *testing.T) {
			v, network := newVerifier(t, snshook.Config{})
			err := v.Confirm(t.Context(), test.body)
			if err == nil || webhook.RefusalOf(err) != test.want {
				t.Errorf("Confirm = %v, want %q", err, test.want)
			}
			for _, url := range network.urls {
				if strings.Contains(url, "?") {
					t.Errorf("requested %s", url)
				}
			}
		})
	}
}

func TestSubscribeURL(t *testing.T) {
	var fields map[string]string
	if err := json.Unmarshal(sign(t, snshook.Message{Type: "SubscriptionConfirmation", Token: "t"}),
		&fields); err != nil {
		t.Fatal(err)
	}
	const query = "?Action=ConfirmSubscription&TopicArn=" + orders + "&Token=t"
	for url, ok := range map[string]bool{
		"https://sns.us-east-1.amazonaws.com/" + query:                                                    true,
		"https://sns.cn-north-1.amazonaws.com.cn/" + query:                                                true,
		"https://sns.us-east-1.amazonaws.com" + query:                                                     false,
		"http://sns.us-east-1.amazonaws.com/" + query:                                                     false,
		"https://sns.us-east-1.amazonaws.com.evil.io/" + query:                                            false,
		"https://sns.us-east-1.amazonaws.com:8443/" + query:                                               false,
		"https://a@sns.us-east-1.amazonaws.com/" + query:                                                  false,
		"https://bucket.s3.amazonaws.com/" + query:                                                        false,
		"https://sns.us-east-1.amazonaws.com/a" + query:                                                   false,
		"https://sns.us-east-1.amazonaws.com/" + query + "#a":                                             false,
		"https://sns.us-east-1.amazonaws.com/" + query + "\n":                                             false,
		"https://sns.us-east-1.amazonaws.com/" + query + "&Action=Publish":                                false,
		"https://sns.us-east-1.amazonaws.com/" + query + "&Token=u":                                       false,
		"https://sns.us-east-1.amazonaws.com/" + query + ";a":                                             false,
		"https://sns.us-east-1.amazonaws.com/?Action=Publish&TopicArn=" + orders + "&Token=t":             false,
		"https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=" + other + "&Token=t":  false,
		"https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=" + orders + "&Token=u": false,
		"": false,
	} {
		fields["SubscribeURL"] = url
		body, err := sharedSigner().SignFields(fields)
		if err != nil {
			t.Fatal(err)
		}
		v, network := newVerifier(t, snshook.Config{})
		if err := v.Confirm(t.Context(), body); (err == nil) != ok {
			t.Errorf("case 60: %q: %v", url, err)
		}
		if confirmed := slices.Contains(network.urls, url); confirmed != ok {
			t.Errorf("case 60: requested %q", network.urls)
		}
	}
}

func TestConfirmFails(t *testing.T) {
	for _, status := range []int{302, 400, 403, 500} {
		v, network := newVerifier(t, snshook.Config{})
		network.respond = func(req *http.Request) (*http.Response, error) {
			if req.URL.RawQuery == "" {
				return network.signer.RoundTrip(req)
			}
			r := response(status, "")
			r.Header.Set("Location", "https://sns.us-east-1.amazonaws.com/")
			return r, nil
		}
		err := v.Confirm(t.Context(), sign(t, snshook.Message{Type: "SubscriptionConfirmation", Token: "secret-token"}))
		if err == nil || strings.Contains(err.Error(), "secret-token") {
			t.Errorf("status %d: %v", status, err)
		}
		if n := network.requests(); n != 2 {
			t.Errorf("status %d: %d requests, want 2", status, n)
		}
	}
	v, network := newVerifier(t, snshook.Config{})
	body := sign(t, snshook.Message{Type: "SubscriptionConfirmation", Token: "secret-token"})
	if _, err := verify(t, v, body); err != nil {
		t.Fatal(err)
	}
	network.respond = func(*http.Request) (*http.Response, error) { return nil, http.ErrHandlerTimeout }
	if err := v.Confirm(t.Context(), body); err == nil || strings.Contains(err.Error(), "secret-token") {
		t.Errorf("without a network: %v, which must not show the token", err)
	}
}

func TestConfig(t *testing.T) {
	for _, test := range []struct {
		name string
		cfg  snshook.Config
		want string
	}{
		{"E23: no topics", snshook.Config{}, "snshook: Config.TopicArns is required: list the topics whose messages you expect, because messages of anybody's topic have a valid signature"},
		{
			"an empty topic",
			snshook.Config{TopicArns: []string{orders, ""}},
			`snshook: Config.TopicArns[1] is "": want the ARN of a topic, such as arn:aws:sns:eu-west-1:123456789012:orders`,
		},
		{"a pattern", snshook.Config{TopicArns: []string{"*"}}, `snshook: Config.TopicArns[0] is "*": want the ARN of a topic, such as arn:aws:sns:eu-west-1:123456789012:orders`},
		{
			"a subscription's ARN",
			snshook.Config{TopicArns: []string{orders + ":c9135db0-26c4-47ec-8998-413945fb5a96"}},
			`snshook: Config.TopicArns[0] is "` + orders +
				`:c9135db0-26c4-47ec-8998-413945fb5a96": want the ARN of a topic, such as arn:aws:sns:eu-west-1:123456789012:orders`,
		},
		{
			"a short horizon",
			snshook.Config{TopicArns: []string{orders}, Horizon: time.Minute},
			"snshook: Config.Horizon is 1m0s: want an hour or more, because SNS may repeat a delivery for an hour",
		},
		{
			"a negative duration",
			snshook.Config{TopicArns: []string{orders}, GiveUpAfter: -1},
			"snshook: Config.GiveUpAfter is -1ns: want more than 0, or 0 for the default",
		},
		{
			"an unknown risk",
			snshook.Config{TopicArns: []string{orders}, AcceptedRisks: []snshook.Risk{"RiskMD5"}},
			`snshook: Config.AcceptedRisks contains "RiskMD5"; the risks that can be accepted here are ["RiskSHA1"]`,
		},
		{"a FIFO topic", snshook.Config{TopicArns: []string{orders + ".fifo"}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := snshook.New(test.cfg)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestSource(t *testing.T) {
	v, _ := newVerifier(t, snshook.Config{})
	if got := v.Source(); got.Name != "sns" || got.Horizon != 24*time.Hour || got.GiveUpAfter != 30*time.Second ||
		got.Deadline != 15*time.Second {
		t.Errorf("Source() = %+v", got)
	}
	v, _ = newVerifier(t, snshook.Config{
		Horizon: 2 * time.Hour, GiveUpAfter: 50 * time.Minute,
		Deadline: 5 * time.Second,
	})
	if got := v.Source(); got.Horizon != 2*time.Hour || got.GiveUpAfter != 50*time.Minute ||
		got.Deadline != 5*time.Second {
		t.Errorf("Source() = %+v", got)
	}
}
