package awssqstest

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// settings are a queue's parsed attributes.
type settings struct {
	given map[string]string // the attributes as they were set, with defaults

	visibility, delay, retention, poll time.Duration
	maxSize                            int
	fifo, byContent, perGroup          bool
	target                             string // dead-letter queue; empty: none
	maxReceives                        int
}

// numbers are the numeric attributes with their minimum, maximum and default.
var numbers = map[types.QueueAttributeName][3]int{
	types.QueueAttributeNameVisibilityTimeout:             {0, 43200, 30},
	types.QueueAttributeNameDelaySeconds:                  {0, 900, 0},
	types.QueueAttributeNameMessageRetentionPeriod:        {60, 1209600, 345600},
	types.QueueAttributeNameReceiveMessageWaitTimeSeconds: {0, 20, 0},
	types.QueueAttributeNameMaximumMessageSize:            {1024, maxBytes, maxBytes},
}

// newSettings parses the attributes. Values in changed override those in before.
func (s *Server) newSettings(name string, before, changed map[string]string) (set settings, err error) {
	fifo := strings.HasSuffix(name, ".fifo")
	set.given = make(map[string]string)
	for number, rule := range numbers {
		set.given[string(number)] = strconv.Itoa(rule[2])
	}
	if fifo {
		set.given["ContentBasedDeduplication"], set.given["DeduplicationScope"], set.given["FifoThroughputLimit"] = "false", "queue", "perQueue"
	}
	maps.Copy(set.given, before)
	maps.Copy(set.given, changed)
	wrong := func(attribute string) (settings, error) {
		return set, &types.InvalidAttributeValue{Message: ptr(fmt.Sprintf("Invalid value for the parameter %s.", attribute))}
	}
	for attribute, value := range set.given {
		switch types.QueueAttributeName(attribute) {
		case types.QueueAttributeNameFifoQueue:
			if !fifo || value != "true" {
				return wrong(attribute)
			}
		case types.QueueAttributeNameContentBasedDeduplication, types.QueueAttributeNameDeduplicationScope,
			types.QueueAttributeNameFifoThroughputLimit:
			if !fifo {
				return set, &types.InvalidAttributeName{Message: ptr("Unknown Attribute " + attribute + ".")}
			}
		case types.QueueAttributeNameRedrivePolicy:
			if set.target, set.maxReceives, err = s.redrive(value, fifo); err != nil {
				return set, err
			}
		case types.QueueAttributeNamePolicy, types.QueueAttributeNameRedriveAllowPolicy,
			types.QueueAttributeNameKmsMasterKeyId,
			// stored without effect
			types.QueueAttributeNameKmsDataKeyReusePeriodSeconds, types.QueueAttributeNameSqsManagedSseEnabled:
		default:
			rule, known := numbers[types.QueueAttributeName(attribute)]
			if !known {
				return set, &types.InvalidAttributeName{Message: ptr("Unknown Attribute " + attribute + ".")}
			}
			if n, err := strconv.Atoi(value); err != nil || n < rule[0] || n > rule[1] {
				return wrong(attribute)
			}
		}
	}
	seconds := func(name types.QueueAttributeName) time.Duration {
		n, _ := strconv.Atoi(set.given[string(name)])
		return time.Duration(n) * time.Second
	}
	set.visibility, set.delay = seconds(types.QueueAttributeNameVisibilityTimeout),
		seconds(types.QueueAttributeNameDelaySeconds)
	set.retention, set.poll = seconds(types.QueueAttributeNameMessageRetentionPeriod),
		seconds(types.QueueAttributeNameReceiveMessageWaitTimeSeconds)
	set.maxSize, _ = strconv.Atoi(set.given["MaximumMessageSize"])
	set.fifo = fifo
	set.byContent, set.perGroup = set.given["ContentBasedDeduplication"] == "true",
		set.given["DeduplicationScope"] == "messageGroup"
	if fifo {
		set.given["FifoQueue"] = "true"
	}
	return set, nil
}

// redrive parses a redrive policy. An empty text means none.
func (s *Server) redrive(policy string, fifo bool) (target string, maxReceives int, err error) {
	if policy == "" {
		return "", 0, nil
	}
	var p struct {
		Target string `json:"deadLetterTargetArn"`
		Max    any    `json:"maxReceiveCount"` // AWS accepts a number or a string
	}
	if err := json.Unmarshal([]byte(policy), &p); err != nil {
		return "", 0, &types.InvalidAttributeValue{Message: ptr("Value " + policy + " for parameter RedrivePolicy is invalid. Reason: Redrive policy is not a valid JSON map.")}
	}
	maxReceives, err = strconv.Atoi(fmt.Sprint(p.Max))
	if err != nil || maxReceives < 1 || maxReceives > 1000 {
		return "", 0, &types.InvalidAttributeValue{Message: ptr("Value " + policy + " for parameter RedrivePolicy is invalid. Reason: Invalid value for maxReceiveCount: " + fmt.Sprint(p.Max) + ", valid values are from 1 to 1000 both inclusive.")}
	}
	name, ours := strings.CutPrefix(p.Target, arnPrefix)
	switch {
	case !ours || s.queues[name] == nil:
		return "", 0, &types.InvalidAttributeValue{Message: ptr("Value " + policy + " for parameter RedrivePolicy is invalid. Reason: Dead letter target does not exist.")}
	case s.queues[name].fifo != fifo:
		return "", 0, &types.InvalidAttributeValue{Message: ptr("Value " + policy + " for parameter RedrivePolicy is invalid. Reason: Dead-letter queue must be same type of queue as the source.")}
	}
	return name, maxReceives, nil
}
