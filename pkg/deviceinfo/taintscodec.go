// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// EncodeDeviceTaints writes the annotation KubeDevice/DeviceTaints: the same text for the same
// taints in any order, and an empty text for none. A list that DecodeDeviceTaints would reject is
// an error of type *Error.
func EncodeDeviceTaints(taints []DeviceTaint) (string, error) {
	if len(taints) == 0 {
		return "", nil
	}
	taints = slices.Clone(taints)
	slices.SortFunc(taints, func(a, b DeviceTaint) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect))
	})
	value, err := encode(struct {
		Version int           `json:"version"`
		Taints  []DeviceTaint `json:"taints"`
	}{taintsVersion, taints})
	if err != nil {
		return "", err
	}
	if _, err := DecodeDeviceTaints(value); err != nil {
		return "", err
	}
	return value, nil
}

// DecodeDeviceTaints reads the annotation KubeDevice/DeviceTaints strictly: unknown content is an
// error. An empty value has no taints. An error is of type *Error.
func DecodeDeviceTaints(value string) ([]DeviceTaint, error) {
	if value == "" {
		return nil, nil
	}
	taints, err := decodeDeviceTaints(value)
	if e := (*Error)(nil); errors.As(err, &e) {
		e.key = DeviceTaintsAnnotation
	}
	if err != nil {
		return nil, err
	}
	return taints, nil
}

func decodeDeviceTaints(value string) ([]DeviceTaint, error) {
	r, err := newReader(value, MaxDeviceTaintsBytes)
	if err != nil {
		return nil, err
	}
	var taints []DeviceTaint
	version := int64(0)
	err = r.object("", func(key string) error {
		switch key {
		case "version":
			token, err := r.token(key)
			if err != nil {
				return err
			}
			version, err = wholeNumber(key, token, 1<<31)
			return err
		case "taints":
			taints, err = r.deviceTaints(key)
			return err
		default:
			return unknownField("", key)
		}
	})
	if err != nil {
		return nil, err
	}
	if version != taintsVersion {
		return nil, &Error{
			Field: "version", Problem: fmt.Sprintf("it is %d, of which nothing is known here", version),
			Fix: fmt.Sprintf("write %d", taintsVersion),
		}
	}
	return taints, checkTogether(taints)
}

func unknownField(path, key string) error {
	return &Error{Field: fieldPath(path, key), Problem: "nothing is known of it here", Fix: "remove it"}
}

// deviceTaints reads a list of taints.
func (r *reader) deviceTaints(path string) ([]DeviceTaint, error) {
	token, err := r.token(path)
	if err != nil {
		return nil, err
	}
	if token != json.Delim('[') {
		return nil, &Error{Field: path, Problem: "it is " + describe(token), Fix: "write a list"}
	}
	var taints []DeviceTaint
	for r.dec.More() {
		if len(taints) == MaxDeviceTaints {
			return nil, &Error{
				Field: path, Problem: fmt.Sprintf("it has more than %d taints", MaxDeviceTaints), Fix: "use fewer",
			}
		}
		taint, err := r.deviceTaint(fmt.Sprintf("%s[%d]", path, len(taints)))
		if err != nil {
			return nil, err
		}
		taints = append(taints, taint)
	}
	_, err = r.token(path)
	return taints, err
}

// deviceTaint reads one taint.
func (r *reader) deviceTaint(path string) (DeviceTaint, error) {
	var taint DeviceTaint
	err := r.object(path, func(key string) error {
		field := fieldPath(path, key)
		var text string
		token, err := r.token(field)
		if err != nil {
			return err
		}
		text, ok := token.(string)
		if !ok {
			return &Error{Field: field, Problem: "it is " + describe(token), Fix: "write a string"}
		}
		switch key {
		case "device":
			taint.Device = text
		case "key":
			taint.Key = text
		case "value":
			taint.Value = text
		case "effect":
			taint.Effect = corev1.TaintEffect(text)
		case "timeAdded":
			added, err := time.Parse(time.RFC3339, text)
			if err != nil {
				return &Error{Field: field, Problem: quote(text) + " is no time", Fix: "write 2006-01-02T15:04:05Z"}
			}
			taint.TimeAdded = added.UTC().Truncate(time.Second)
		default:
			return unknownField(path, key)
		}
		return nil
	})
	if err != nil {
		return DeviceTaint{}, err
	}
	return taint, taint.check(path)
}

// check returns the error of one taint.
func (t DeviceTaint) check(path string) error {
	if err := checkResource(fieldPath(path, "device"), t.Device); err != nil {
		return err
	}
	if strings.Count(t.Device, "/") != 1 {
		return &Error{
			Field: fieldPath(path, "device"), Problem: quote(t.Device) + " is not a level with an ID",
			Fix: "write both, such as gpu/GPU-7f3a",
		}
	}
	if problems := validation.IsQualifiedName(t.Key); len(problems) > 0 {
		return &Error{Field: fieldPath(path, "key"), Problem: quote(t.Key) + " is no key", Fix: problems[0]}
	}
	if problems := validation.IsValidLabelValue(t.Value); len(problems) > 0 {
		return &Error{Field: fieldPath(path, "value"), Problem: quote(t.Value) + " is no value", Fix: problems[0]}
	}
	return CheckTaintEffect(fieldPath(path, "effect"), t.Effect)
}

// CheckTaintEffect returns an error for an effect that taints of devices do not have.
func CheckTaintEffect(field string, effect corev1.TaintEffect) error {
	switch effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute:
		return nil
	case corev1.TaintEffectPreferNoSchedule:
		return &Error{
			Field: field,
			Problem: "devices have no PreferNoSchedule: the scheduler ranks nodes, and does not choose among a " +
				"node's devices by their taints",
			Fix: "use NoSchedule or NoExecute", key: DeviceTaintsAnnotation,
		}
	}
	return &Error{
		Field: field, Problem: quote(string(effect)) + " is no effect", Fix: "use NoSchedule or NoExecute",
		key: DeviceTaintsAnnotation,
	}
}

// checkTogether returns the error of a list of taints that are valid each by itself.
func checkTogether(taints []DeviceTaint) error {
	type identity struct {
		device, key string
		effect      corev1.TaintEffect
	}
	seen, distinct := map[identity]bool{}, map[corev1.Taint]bool{}
	for i, t := range taints {
		id := identity{t.Device, t.Key, t.Effect}
		if seen[id] {
			return &Error{
				Field:   fmt.Sprintf("taints[%d]", i),
				Problem: fmt.Sprintf("the device %s has a taint %s:%s twice", t.Device, t.Key, t.Effect),
				Fix:     "keep one of them",
			}
		}
		seen[id], distinct[t.Taint()] = true, true
	}
	if len(distinct) > MaxDistinctTaints {
		return &Error{
			Field:   "taints",
			Problem: fmt.Sprintf("it has %d taints that differ in key, value or effect", len(distinct)),
			Fix:     fmt.Sprintf("use at most %d", MaxDistinctTaints),
		}
	}
	return nil
}
