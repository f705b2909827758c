package watermilltx

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
)

// refuseUnsafe refuses publishers that are known to return nil too early. They are recognised by their type's name and fields,
// as this package imports none of them. What is not recognised is taken at its word.
func refuseUnsafe(publisher message.Publisher, allow []Allowance) error {
	if _, inMemory := publisher.(*gochannel.GoChannel); inMemory && !slices.Contains(allow, AllowInMemory) {
		return fmt.Errorf("watermilltx: PublisherConfig.Publisher is a gochannel.GoChannel, whose messages are gone when the process ends: "+
			"Allow: %s accepts that", AllowInMemory)
	}
	if slices.Contains(allow, AllowUnconfirmed) {
		return nil
	}
	v := reflect.Indirect(reflect.ValueOf(publisher))
	if v.Kind() != reflect.Struct || v.Type().Name() != "Publisher" {
		return nil
	}
	setting, problem := "", ""
	switch path := v.Type().PkgPath(); {
	case strings.Contains(path, "/watermill-amqp/"):
		if confirms, ok := boolAt(v, "config", "Publish", "ConfirmDelivery"); ok && !confirms {
			setting, problem = "Publish.ConfirmDelivery", "is false: RabbitMQ does not confirm, and what it loses nobody notices"
		}
	case strings.Contains(path, "/watermill-kafka/"):
		if acks, ok := intAt(v, "config", "OverwriteSaramaConfig", "Producer", "RequiredAcks"); ok && acks != -1 {
			setting, problem = "Producer.RequiredAcks", "is not WaitForAll: what only a partition's leader has is lost with it"
		} else if idempotent, ok := boolAt(v, "config", "OverwriteSaramaConfig", "Producer", "Idempotent"); ok && !idempotent {
			setting, problem = "Producer.Idempotent", "is false: sarama's own retries repeat and overtake"
		}
	}
	if setting == "" {
		return nil
	}
	return fmt.Errorf("watermilltx: PublisherConfig.Publisher is a %s, and its %s %s; Allow: %s accepts that", v.Type(), setting, problem, AllowUnconfirmed)
}

func boolAt(v reflect.Value, path ...string) (value, ok bool) {
	if v = fieldAt(v, path); v.Kind() != reflect.Bool {
		return false, false
	}
	return v.Bool(), true
}

func intAt(v reflect.Value, path ...string) (value int64, ok bool) {
	if v = fieldAt(v, path); !v.CanInt() {
		return 0, false
	}
	return v.Int(), true
}

// fieldAt returns the zero Value where there is no such field.
func fieldAt(v reflect.Value, path []string) reflect.Value {
	for _, name := range path {
		if v = reflect.Indirect(v); v.Kind() != reflect.Struct {
			return reflect.Value{}
		}
		v = v.FieldByName(name)
	}
	return v
}
