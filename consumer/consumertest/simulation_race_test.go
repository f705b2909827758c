//go:build race

package consumertest_test

const raced = true
