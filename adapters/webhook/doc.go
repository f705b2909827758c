// Package webhook receives webhooks so that each event is handled once, although its sender delivers it several times.
package webhook
