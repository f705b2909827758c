package applehook

import "encoding/json"

// Transaction is what Apple calls JWSTransactionDecodedPayload: one purchase, renewal or refund.
type Transaction struct {
	AppAccountToken      string      `json:"appAccountToken"`
	AppTransactionID     string      `json:"appTransactionId"`
	BundleID             string      `json:"bundleId"`
	Currency             string      `json:"currency"`
	Environment          Environment `json:"environment"`
	ExpiresDate          Millis      `json:"expiresDate"`
	InAppOwnershipType   string      `json:"inAppOwnershipType"`
	IsUpgraded           bool        `json:"isUpgraded"`
	OfferDiscountType    string      `json:"offerDiscountType"`
	OfferIdentifier      string      `json:"offerIdentifier"`
	OfferPeriod          string      `json:"offerPeriod"`
	OfferType            int         `json:"offerType"`
	OriginalPurchaseDate Millis      `json:"originalPurchaseDate"`
	// the same for all renewals of a subscription
	OriginalTransactionID       string `json:"originalTransactionId"`
	Price                       int64  `json:"price"` // in thousandths of the currency's unit
	ProductID                   string `json:"productId"`
	PurchaseDate                Millis `json:"purchaseDate"`
	Quantity                    int64  `json:"quantity"`
	RevocationDate              Millis `json:"revocationDate"`
	RevocationReason            *int   `json:"revocationReason"` // nil: it is not revoked; 0 is a reason
	SignedDate                  Millis `json:"signedDate"`
	Storefront                  string `json:"storefront"`
	StorefrontID                string `json:"storefrontId"`
	SubscriptionGroupIdentifier string `json:"subscriptionGroupIdentifier"`
	TransactionID               string `json:"transactionId"`
	TransactionReason           string `json:"transactionReason"`
	Type                        string `json:"type"`
	WebOrderLineItemID          string `json:"webOrderLineItemId"`

	Raw json.RawMessage `json:"-"` // the JSON, as Apple signed it
}

// Renewal is what Apple calls JWSRenewalInfoDecodedPayload: how a subscription goes on.
type Renewal struct {
	AppAccountToken         string      `json:"appAccountToken"`
	AppTransactionID        string      `json:"appTransactionId"`
	AutoRenewProductID      string      `json:"autoRenewProductId"`
	AutoRenewStatus         int         `json:"autoRenewStatus"` // 1: it renews
	Currency                string      `json:"currency"`
	EligibleWinBackOfferIDs []string    `json:"eligibleWinBackOfferIds"`
	Environment             Environment `json:"environment"`
	ExpirationIntent        int         `json:"expirationIntent"`
	GracePeriodExpiresDate  Millis      `json:"gracePeriodExpiresDate"`
	IsInBillingRetryPeriod  bool        `json:"isInBillingRetryPeriod"`
	OfferDiscountType       string      `json:"offerDiscountType"`
	OfferIdentifier         string      `json:"offerIdentifier"`
	OfferPeriod             string      `json:"offerPeriod"`
	OfferType               int         `json:"offerType"`
	OriginalTransactionID   string      `json:"originalTransactionId"`
	// nil: no increase; 0: the customer did not respond
	PriceIncreaseStatus         *int   `json:"priceIncreaseStatus"`
	ProductID                   string `json:"productId"`
	RecentSubscriptionStartDate Millis `json:"recentSubscriptionStartDate"`
	RenewalDate                 Millis `json:"renewalDate"`
	RenewalPrice                int64  `json:"renewalPrice"` // in thousandths of the currency's unit
	SignedDate                  Millis `json:"signedDate"`

	Raw json.RawMessage `json:"-"` // the JSON, as Apple signed it
}

// AppTransaction is what Apple calls AppTransaction: the download of an app.
type AppTransaction struct {
	AppAppleID                 int64       `json:"appAppleId"`
	ApplicationVersion         string      `json:"applicationVersion"`
	AppTransactionID           string      `json:"appTransactionId"`
	BundleID                   string      `json:"bundleId"`
	OriginalApplicationVersion string      `json:"originalApplicationVersion"`
	OriginalPlatform           string      `json:"originalPlatform"`
	OriginalPurchaseDate       Millis      `json:"originalPurchaseDate"`
	ReceiptCreationDate        Millis      `json:"receiptCreationDate"`
	ReceiptType                Environment `json:"receiptType"`

	Raw json.RawMessage `json:"-"` // the JSON, as Apple signed it
}
