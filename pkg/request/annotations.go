// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// annotation is an annotation that users write for a pod.
type annotation struct {
	key string
	// check returns an error for a value that is not read. It is nil where Reader reads the value.
	check func(value string) error
	// refused says that the scheduler refuses a pod with a value that is not read.
	refused bool
}

// annotations are all annotations that users write for a pod.
var annotations = []annotation{
	{key: deviceinfo.Annotation},
	{key: deviceinfo.OnDeviceFailureAnnotation, check: deviceinfo.CheckOnDeviceFailure},
	{key: deviceinfo.DeviceFailureGracePeriodAnnotation, check: func(value string) error {
		_, err := deviceinfo.ParseDeviceFailureGracePeriod(value)
		return err
	}},
	{key: deviceinfo.OnShareExceededAnnotation, check: deviceinfo.CheckOnShareExceeded},
	{key: deviceinfo.LeastEnforcementAnnotation, check: deviceinfo.CheckLeastEnforcement, refused: true},
}

// AnnotationKeys returns the keys of the annotations that users write for a pod.
func AnnotationKeys() (keys []string) {
	for _, a := range annotations {
		keys = append(keys, a.key)
	}
	return keys
}

// objectsOf has the objects from which a program reads the annotation of a key.
var objectsOf = func() map[string][]string {
	objects := map[string][]string{}
	for _, key := range deviceinfo.Keys() {
		if !key.Label {
			objects[key.Name] = append(objects[key.Name], key.Objects...)
		}
	}
	return objects
}()

// domain is the domain of the keys that users write, and typos how many characters of it may
// differ in one that is meant.
const (
	domain = "KubeDevice"
	typos  = 2
)

// CheckAnnotation returns the mistake in an annotation of a pod: a key that is meant for KubeDevice
// and that no program reads, or a value that is not read. It returns nil if there is none, and does
// not read the value of [deviceinfo.Annotation].
func CheckAnnotation(key, value string) *Mistake {
	mistake := &Mistake{Field: "annotation " + key, Word: key}
	objects, known := objectsOf[key]
	switch {
	case !known && isOurs(key):
		mistake.Known = AnnotationKeys()
		mistake.Problem = "no program reads it"
		mistake.Refused = Nearest(key, mistake.Known) != ""
		return mistake
	case !known:
		return nil
	case !slices.Contains(objects, "pods"):
		mistake.Problem = fmt.Sprintf("it is read from %s and not from pods", strings.Join(objects, " and "))
		return mistake
	}
	for _, a := range annotations {
		if a.key != key || a.check == nil || value == "" {
			continue
		}
		if err := a.check(value); err != nil {
			mistake.Word, mistake.Problem, mistake.Refused = value, err.Error(), a.refused
			return mistake
		}
	}
	return nil
}

// otherDomain is the domain of labels, and of annotations that users do not write.
const otherDomain = "kubedevice.io"

// isOurs reports whether the author of a key means a key of KubeDevice: its domain is ours in any
// case, or nearly. Most keys of others are recognized by the length of their domain: this runs for
// each pod of a cluster.
func isOurs(key string) bool {
	end := strings.IndexByte(key, '/')
	if end < 0 {
		end = strings.IndexAny(key, ".-_")
	}
	if end < len(domain)-typos || end > len(domain)+typos {
		return end >= 0 && strings.EqualFold(key[:end], otherDomain)
	}
	return distance(strings.ToLower(key[:end]), strings.ToLower(domain)) <= typos
}

// checkAnnotations returns an error for the first annotation that has the scheduler refuse a pod
// that requests devices. requests says that the pod does. An annotation that is probably
// [deviceinfo.Annotation] does too.
func checkAnnotations(annotations map[string]string, requests bool) error {
	first := firstRefused(annotations, requests)
	if first == nil {
		return nil
	}
	return fmt.Errorf("%s Correct or remove it: the pod waits until then", first)
}

// MisspelledRequest returns the mistake in the first annotation of a pod that is probably
// [deviceinfo.Annotation], or nil if there is none. The scheduler refuses such a pod.
func MisspelledRequest(annotations map[string]string) *Mistake {
	return firstRefused(annotations, false)
}

// maxMistakes is how many mistakes of a pod are looked at. It may have ten thousand keys that are
// nearly ours. Each takes microseconds, in the scheduler and for each container on the node.
const maxMistakes = 32

// mistakesOf returns the mistakes in the annotations of a pod in any order, maxMistakes at most.
func mistakesOf(annotations map[string]string) (found []*Mistake) {
	for key, value := range annotations {
		if mistake := CheckAnnotation(key, value); mistake != nil {
			found = append(found, mistake)
		}
		if len(found) == maxMistakes {
			break
		}
	}
	return found
}

// firstRefused returns the first of the mistakes for which checkAnnotations returns an error.
func firstRefused(annotations map[string]string, requests bool) (first *Mistake) {
	for _, mistake := range mistakesOf(annotations) {
		if !mistake.Refused || first != nil && first.Field < mistake.Field {
			continue
		}
		if requests || Nearest(mistake.Word, mistake.Known) == deviceinfo.Annotation {
			first = mistake
		}
	}
	return first
}

// annotationMistakes returns the mistakes that do not have a pod refused, in the order of the keys.
func annotationMistakes(annotations map[string]string) (found []Mistake) {
	for _, mistake := range mistakesOf(annotations) {
		if !mistake.Refused {
			found = append(found, *mistake)
		}
	}
	slices.SortFunc(found, func(a, b Mistake) int { return strings.Compare(a.Field, b.Field) })
	return found
}
