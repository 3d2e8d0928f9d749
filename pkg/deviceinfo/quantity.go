// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"math"

	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// maxQuantityBytes is the longest quantity that is parsed. Kubernetes' parser takes time and memory
// for each digit.
const maxQuantityBytes = 64

// requests reads the requests that a user writes: whole numbers in base units, or quantities in the
// notation of Kubernetes, such as "20Gi", as strings. All other lists of an annotation have whole
// numbers only.
func (r *reader) requests(path string, destination *types.ResourceList) error {
	return r.list(path, destination, r.quantity)
}

// quantity reads a request for a resource, from 0 to the largest int64.
func (r *reader) quantity(path, name string) (int64, error) {
	if err := checkResource(path, name); err != nil {
		return 0, err
	}
	token, err := r.token(path)
	if err != nil {
		return 0, err
	}
	if text, ok := token.(string); ok {
		return parseQuantity(path, text)
	}
	return wholeNumber(path, token, math.MaxInt64)
}

// parseQuantity returns the base units of a quantity in the notation of Kubernetes.
func parseQuantity(path, text string) (int64, error) {
	wrong := func(problem string) (int64, error) {
		return 0, &Error{
			Field: path, Problem: quote(text) + problem,
			Fix: `write a whole number, or a quantity such as "20Gi" or "512Mi"`,
		}
	}
	if len(text) > maxQuantityBytes {
		return wrong(" is too long for a quantity")
	}
	quantity, err := apiresource.ParseQuantity(text)
	if err != nil {
		return wrong(" is no quantity")
	}
	whole := quantity.Value()
	switch {
	case quantity.Sign() < 0:
		return wrong(" is negative")
	case quantity.CmpInt64(math.MaxInt64) >= 0: // the parser cuts off some that are larger
		return wrong(" is too large")
	case quantity.Cmp(*apiresource.NewQuantity(whole, apiresource.DecimalSI)) != 0:
		return wrong(" is not a whole number of base units, such as bytes")
	}
	return whole, nil
}
