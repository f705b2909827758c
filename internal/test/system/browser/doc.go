// Package browser tests the dashboard in a real Chromium. It is a module of its own, because users of the dashboard do
// not need chromedp. testdata/axe.min.js is axe-core 4.14.1, which checks that people with disabilities can use a page.
// Its licence is beside it.
package browser
