package v1

// Annotations, or labels, of a node that say what it costs. An annotation goes before a label of the same name.
const (
	// AnnotationPricePerHour is the price of the whole node for an hour, as a decimal number, for example 3.06.
	AnnotationPricePerHour = "ml.example.com/price-per-hour"
	// AnnotationPriceCurrency is the currency of the price. Default USD.
	AnnotationPriceCurrency = "ml.example.com/price-currency"
)
