// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// Handler answers POST why, fit and whatif below /devices/v1alpha1/: JSON in, JSON out, errors as a
// metav1.Status. The caller decides who may send questions, how many and of what size.
func (e *Engine) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST "+schedulerapi.WhyPath, answering(e.Why))
	mux.Handle("POST "+schedulerapi.FitPath, answering(e.Fit))
	mux.Handle("POST "+schedulerapi.WhatIfPath, answering(e.WhatIf))
	return mux
}

// maxValues is how many values a question may have, in JSON. A list element of three bytes can be a
// container, which takes half a kilobyte.
const maxValues = 1 << 15

// answering returns the handler of one kind of question. An unknown field is an error: a mistyped
// name would change the meaning.
func answering[In, Out any](answer func(context.Context, In) (*Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var question In
		if err := read(r.Body, &question); err != nil {
			fail(w, err)
			return
		}
		found, err := answer(r.Context(), question)
		if err != nil {
			fail(w, err)
			return
		}
		write(w, http.StatusOK, found)
	})
}

// read reads a question. The caller has limited its size.
func read(reader io.Reader, question any) error {
	text, err := io.ReadAll(reader)
	if bytes.Count(text, []byte(",")) >= maxValues {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("it has more than %d values: use a smaller "+
			"pod", maxValues))
	}
	if err == nil {
		err = decode(text, question)
	}
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("read the question: %v", err))
	}
	return nil
}

func decode(text []byte, question any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(question); err != nil {
		return err
	}
	if decoder.Decode(&struct{}{}) != io.EOF {
		return errors.New("there is more after the question")
	}
	return nil
}

// fail writes an error, as the API server does.
func fail(w http.ResponseWriter, err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.Kind, status.APIVersion, status.Status = "Status", "v1", metav1.StatusFailure
	write(w, int(status.Code), status)
}

func write(w http.ResponseWriter, code int, object any) {
	text, err := json.Marshal(object)
	if err != nil { // of plain types
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n')) // the reader is gone
}
