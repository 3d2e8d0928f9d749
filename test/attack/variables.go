// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// variable is a variable in a text: ${name}.
var variable = regexp.MustCompile(`\$\{([^}]+)\}`)

// variables are those that every attempt has; see value. Others are in its field With.
var variables = []string{
	"id", "namespace", "here", "pod", "uid", "device", "card", "reserved card", "request", "allocation", "seal",
	"scheduled", "forged", "without kubecri", "unbounded", "address of scheduled", "address of forged",
}

// value returns what stands for a variable.
func (p *trial) value(name string) (string, error) {
	if value, own := p.script.With[name]; own {
		return p.text(value)
	}
	if text, is := repeated(name); is {
		return text, nil
	}
	switch name {
	case "id":
		return p.attempt.ID, nil
	case "namespace":
		return p.namespace, nil
	case "here": // the path of the attempt's namespace in the core API
		return "/api/v1/namespaces/" + p.namespace, nil
	case "pod", "uid": // the path and the UID of the pod that was created last
		if p.created == nil {
			return "", fmt.Errorf("variable %s: no pod was created", name)
		}
		if name == "uid" {
			return string(p.created.UID), nil
		}
		return "/api/v1/namespaces/" + p.created.Namespace + "/pods/" + p.created.Name, nil
	case "address of scheduled":
		return p.node(scheduled).IP, nil
	case "address of forged":
		return p.node(forged).IP, nil
	case "device":
		return p.device, nil
	case "card":
		return string(p.card), nil
	case "reserved card":
		return string(cardOf(reservedCard)), nil
	case "request": // what allocations are for
		return string(request), nil
	case "seal": // that was forged last
		return p.seal, nil
	case "allocation": // the annotation that gives a pod with the name forged the device
		return p.Stage.allocation("forged"), nil
	}
	for i, node := range []string{scheduled: "scheduled", forged: "forged", withoutKubecri: "without kubecri",
		unbounded: "unbounded"} {
		if node == name && i < len(p.cluster.Nodes) {
			return p.node(i).Name, nil
		}
	}
	return "", fmt.Errorf("there is no variable %q here", name)
}

// repetition is the name of a variable that is a text, many times: repeat TEXT TIMES.
var repetition = regexp.MustCompile(`^repeat (\S+) (\d+)$`)

// repeated returns what stands for such a variable.
func repeated(name string) (string, bool) {
	match := repetition.FindStringSubmatch(name)
	if match == nil {
		return "", false
	}
	times, err := strconv.Atoi(match[2])
	if err != nil {
		return "", false
	}
	return strings.Repeat(match[1], times), true
}

// text returns a text with the values of its variables.
func (p *trial) text(text string) (string, error) {
	var failed error
	expanded := variable.ReplaceAllStringFunc(text, func(match string) string {
		value, err := p.value(variable.FindStringSubmatch(match)[1])
		failed = errors.Join(failed, err)
		return value
	})
	return expanded, failed
}

// expand returns JSON with the values of the variables that are in its strings.
func (p *trial) expand(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, err
	}
	value, err := p.expandAny(value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

func (p *trial) expandAny(value any) (any, error) {
	switch value := value.(type) {
	case string:
		return p.text(value)
	case []any:
		list := make([]any, len(value))
		for i, element := range value {
			var err error
			if list[i], err = p.expandAny(element); err != nil {
				return nil, err
			}
		}
		return list, nil
	case map[string]any:
		object := map[string]any{}
		for key, element := range value {
			name, err := p.text(key)
			if err != nil {
				return nil, err
			}
			if object[name], err = p.expandAny(element); err != nil {
				return nil, err
			}
		}
		return object, nil
	default:
		return value, nil
	}
}
