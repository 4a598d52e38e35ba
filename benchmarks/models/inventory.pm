// A shop orders nothing, three or six pieces a day; the cost of 15 days is that of storing, and of customers sent away.
mdp
module shop
  stock : [0..12] init 6;
  missed : [0..4] init 0;
  [none] true -> 0.2 : (missed'=0) + 0.35 : (stock'=max(stock-2,0)) & (missed'=max(2-stock,0))
    + 0.3 : (stock'=max(stock-3,0)) & (missed'=max(3-stock,0))
    + 0.15 : (stock'=max(stock-4,0)) & (missed'=max(4-stock,0));
  [three] stock<=9 -> 0.2 : (stock'=stock+3) & (missed'=0) + 0.35 : (stock'=stock+1) & (missed'=0)
    + 0.3 : (missed'=0) + 0.15 : (stock'=max(stock-1,0)) & (missed'=max(1-stock,0));
  [six] stock<=6 -> 0.2 : (stock'=stock+6) & (missed'=0) + 0.35 : (stock'=stock+4) & (missed'=0)
    + 0.3 : (stock'=stock+3) & (missed'=0) + 0.15 : (stock'=stock+2) & (missed'=0);
endmodule
rewards "cost"
  true : 0.1*stock + 2*missed;
endrewards
