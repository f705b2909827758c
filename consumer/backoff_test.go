package consumer_test

import (
	"fmt"
	"time"

	"github.com/txonce/txonce/consumer"
)

func ExampleFullJitter() {
	backoff := consumer.FullJitter(100*time.Millisecond, 10*time.Second)
	fmt.Println(backoff(1) <= 100*time.Millisecond, backoff(3) <= 400*time.Millisecond, backoff(1000) <= 10*time.Second)
	// Output: true true true
}
