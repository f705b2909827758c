// Package browser has the tests of the dashboard in a real Chromium. It is a module of its own, so that chromedp is in nobody else's
// go.mod. testdata/axe.min.js is axe-core 4.14.1, which finds what keeps people with disabilities from using a page; its licence is beside
// it.
package browser
